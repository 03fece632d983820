"""FedIRM: sites without labels learn how classes resemble each other at sites with labels.

Liu, Yang, Dou, Heng: *Federated semi-supervised medical image classification via inter-client
relation matching*, MICCAI 2021. A site with labels sends, with its update, a matrix of what its
model answers on average about the images of each class. The server averages the matrices. A site
without labels follows a mean teacher, and is trained so that the matrix of its own pseudo-labels
resembles the mean matrix.
"""
